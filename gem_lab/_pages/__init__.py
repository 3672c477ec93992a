"""HTML pages and plots that several packages write."""
