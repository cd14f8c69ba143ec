"""The embedded default: answers by quoting, without a language model."""
