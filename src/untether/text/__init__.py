"""Text: an agent's Markdown and our own lines, made safe and ready for a chat, the console and a notification."""
