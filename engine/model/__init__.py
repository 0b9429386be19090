"""What a model's prefill consists of: shapes, operators, tiles. No torch: real and simulated execution both use it."""
