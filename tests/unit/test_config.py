"""Configuration: every key has a default, and a mistake is one clear line."""

from pathlib import Path

import pytest

from slurmgpu.config import ConfigError, Seconds, all_keys, load


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURMGPU_CONF", raising=False)
    monkeypatch.delenv("SLURMGPU_STORE_URL", raising=False)


def write(folder: Path, text: str) -> Path:
    path = folder / "slurmgpu.toml"
    path.write_text(text)
    return path


def test_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    config = load(write(tmp_path, ""))
    assert (config.node.interval, config.node.flush) == (10, 60)
    assert config.node.run_dir == Path("/run/slurmgpu")
    assert config.store.url == "sqlite:////var/lib/slurmgpu/slurmgpu.db"


def test_durations_have_units(tmp_path: Path) -> None:
    config = load(write(tmp_path, '[node]\ninterval = "500ms"\nflush = "2m"'))
    assert (config.node.interval, config.node.flush) == (Seconds(0.5), Seconds(120))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[node]\nintervall = "1s"', "unknown key node.intervall: did you mean node.interval?"),
        ('url = "sqlite://"', "unknown key url: did you mean store.url?"),
        ("[nodes]\nname = 'x'", "unknown key nodes"),
        ("node = 3", "node is a table: write [node]"),
        ("[node]\ninterval = 0", "node.interval must lie between"),
        ("[node]\ninterval = 10\nflush = 5", "node.flush must lie between node.interval"),
        ('[node]\ninterval = "fast"', 'node.interval must be seconds or a text such as "30s"'),
        ("[node]\ninterval = true", "node.interval must be seconds"),
        ('[node]\nrun_dir = "run"', "node.run_dir must be an absolute path"),
        ("[node]\nname = 4", "node.name must be a str"),
        ('[store]\nurl = "here.db"', "store.url must be a URL"),
        ('[collect]\nspool_dirs = "/x"', "collect.spool_dirs must be a list of texts"),
        ("[node", "slurmgpu.toml"),
        ("\x00", "slurmgpu.toml"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text))
    assert words in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_asked_for_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read: No such file"):
        load(tmp_path / "none.toml")


def test_environment_names_file_and_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMGPU_CONF", str(write(tmp_path, '[node]\nname = "n7"\n[store]\nurl = "sqlite:///a"')))
    monkeypatch.setenv("SLURMGPU_STORE_URL", "sqlite:////b.db")
    assert load().node.name == "n7"
    assert load().store.url == "sqlite:////b.db"


def test_conf_d_is_laid_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = write(tmp_path, '[node]\nname = "a"\ninterval = 2\nflush = 20')
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10-site.toml").write_text('[node]\nname = "b"')
    (tmp_path / "conf.d" / "20-site.toml").write_text("[node]\ninterval = 5")
    monkeypatch.setattr("slurmgpu.config.DEFAULT_PATH", main)
    node = load().node
    assert (node.name, node.interval, node.flush) == ("b", 5, 20)


def test_keys_are_listed() -> None:
    assert {"cluster", "node.name", "node.flush", "store.url"} <= set(all_keys())
