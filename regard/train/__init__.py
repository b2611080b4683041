"""train: one loop for everything that Learns, and the session that gives it data and keeps what it makes."""
