"""The talk with one client: what it may ask for, what it has asked, and the answers on their way back."""
