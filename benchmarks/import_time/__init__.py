"""How long `import refold` takes, beside `import langchain.agents`."""
