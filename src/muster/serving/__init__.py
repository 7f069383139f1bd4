"""What a running scheduler shows to those who watch over it: health, figures and a log. Nothing here decides anything."""
