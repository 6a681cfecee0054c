"""Who looks on while operators run: observers, and what they may ask about a call."""
