"""Repository agents: what looks at a model's files before they are loaded, and may refuse them or hand over others.

`base` is for packages that bring agents of their own, under the entry point group `naiad.repository_agents`.
"""
