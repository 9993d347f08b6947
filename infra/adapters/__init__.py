"""Objects of other projects that we write or read: pure builders and readers, without Django."""
