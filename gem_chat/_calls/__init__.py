"""Tool calls in text: the formats that models and environments use, read and written."""
