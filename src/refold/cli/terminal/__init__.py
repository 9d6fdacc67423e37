"""The agent of `refold run`: what is loaded by name, what it may do, what is shown, and how a person is asked."""
