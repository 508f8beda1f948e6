"""Facts about jobs, and the forms in which people and programs read them."""
