"""The nouns of Muster: frozen values, standard library only. Nothing here decides or remembers anything."""
