"""The file that the stand-in's command would be given by path."""
