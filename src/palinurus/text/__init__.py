"""Work on text that every package needs, each thing once: tokens, words, stems, sentences, dates. All linear."""
