"""Who speaks next: accept, choose the session, queue, run, reply."""
