"""The chaos suite: the bridge is killed, cut off and lied to, and the chat must not show it."""
