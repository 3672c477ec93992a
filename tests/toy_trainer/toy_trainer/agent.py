"""The file whose path would be passed to the stub's command."""
