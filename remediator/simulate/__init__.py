"""What a person asks of a simulated fleet comes in; its table, JSON or page of plots goes out."""
