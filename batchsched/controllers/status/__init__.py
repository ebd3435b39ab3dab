"""What users see of the scheduler: status, conditions and Events. Writes wait while pods are being bound."""
