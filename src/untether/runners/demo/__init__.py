"""The demo engine: a scripted agent that needs no account, spoken to like Claude Code."""
