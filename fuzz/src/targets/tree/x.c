The fuzzed patches change this file; only its name is looked at.
