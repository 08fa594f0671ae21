"""Untether: drive the coding agents on your own machine from a chat."""

__version__ = "0.1.0"
