"""Why a gang was refused: what binds, what is missing, and the smallest change that admits it."""
