"""What runs alone can't show about stopping at a target."""

from tools.lab.comparison import expect_curve


def not_at_the_target(record, runs):
    """Raise Wrong if training stops at a loss that equals the target."""
    loss, _, _ = record.rows[1]
    flags = [*record.setting.flags, "--target", repr(loss)]
    options = vars(record.setting) | {"flags": flags}
    right = runs.solution(**options)
    expect_curve(runs(**options), right, "a correct script")
