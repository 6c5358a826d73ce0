-- Slots that are held for a model and start, or are missed, once it is known whether it is there.
CREATE INDEX slots_held_for_model ON slots (job)
    WHERE decision = 'held' AND reason = 'model_unreachable';
