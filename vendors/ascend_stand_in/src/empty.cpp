// Libraries that a program links and that have nothing of their own here.
