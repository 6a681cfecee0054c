"""No model: the documents import it, and name one that is downloaded."""
