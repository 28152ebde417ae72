"""Legitimate spellings that qkv rewrite leaves as they are, and why. run.py holds them to it: their numbers must
stay, and one that is fused after all must leave this table. They count as legitimate spellings that are not right."""

LEFT = {}
