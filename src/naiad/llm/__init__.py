"""Chat templates, detokenising, parsers. Empty until LLM serving comes."""
