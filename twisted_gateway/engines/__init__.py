"""What each kind of engine publishes, and the observer that reads it."""
