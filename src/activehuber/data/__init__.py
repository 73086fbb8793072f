"""Rows wherever they are, tables and their encoding."""
