"""Recipes: well-known models made into .pt2 files."""
