"""File tools for the agent: `ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep`, `delete`."""

from refold.agent.tools.files import FILE_TOOLS, file_tools
from refold.agent.tools.permissions import PROTECT_ARTIFACTS, Decision, Operation, Permissions, Rule

__all__ = ["FILE_TOOLS", "PROTECT_ARTIFACTS", "Decision", "Operation", "Permissions", "Rule", "file_tools"]
