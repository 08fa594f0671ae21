"""What tests share: recordings, and the bridge as a process."""
