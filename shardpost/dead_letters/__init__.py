"""Dead letters: swept into retry topics with backoff, parked, redriven or discarded."""
