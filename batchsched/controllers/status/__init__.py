"""What users see of a running scheduler: status, conditions and Events. It follows the binds, and yields to them."""
