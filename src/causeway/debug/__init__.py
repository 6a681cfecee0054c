"""The switches of all debugging tools, and two watchers: `dump` and `overflow`."""
