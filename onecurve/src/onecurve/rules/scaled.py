"""`GradScaler` multiplied the gradients by 65,536, so all of them are clipped."""

# Logged by watch/optimizers.py.
LEVEL = "LOOK"
MESSAGE = "gradients are clipped before they are unscaled"
FIX = "call scaler.unscale_(optimizer) before clipping"
