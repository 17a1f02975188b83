"""What the plugins share whose records are sequences of letters: file formats, alphabets."""
