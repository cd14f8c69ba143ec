"""The door: who may come in, with which rights, what no right reaches, and how somebody is turned away."""
