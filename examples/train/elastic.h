// Training whose ranks come and go (docs/elastic.md): `tutti run --elastic MIN:MAX train ...`. When
// a rank dies, or a new one is there, the ranks that there are meet, spread the model over as many,
// and go on from the newest checkpoint.
#pragma once

#include <functional>

#include "options.h"
#include "tutti.h"

namespace train {

/// Whether `tutti run --elastic` has started this process.
bool is_elastic();

/// Calls train(world, the options for as many ranks, job) until it returns true: training is over.
/// False: the ranks are to meet anew, as they do when it throws peer_lost or aborted. A number of
/// ranks that the mix cannot have waits for other ranks, up to Options::rendezvous_timeout. Throws
/// tutti::Error(invalid_argument) for options that say of no checkpoints.
void train_elastic(
    const Options& options, const tutti::Options& settings,
    const std::function<bool(tutti::Communicator&, const Options&, tutti::ElasticJob&)>& train);

}  // namespace train
