// A small network on a field of 1 to 3 dimensions: convolution, norm over the field, pooling, a
// strided and dilated convolution. It is trained on one rank, which pads the field by itself, and
// on ranks that have blocks of it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/domain/halo.h"
#include "parallel/mesh.h"

namespace tutti::test {

struct DomainModel {
  std::vector<parallel::domain::Dimension> dimensions;
  bool max_pool = true;
  std::size_t samples = 2;
  std::size_t steps = 5;
  std::string text() const;
};

/// What training has made of the parameters, and the last output, of a rank's own block.
struct TrainedDomain {
  std::vector<double> parameters;
  std::vector<double> output;  // samples x channels x cells of `block`
  parallel::domain::Box block;
  std::size_t samples = 0, first_sample = 0;
};

/// What the model needs of the ranks.
struct DomainRanks {
  /// Adds numbers of the ranks that share samples.
  std::function<void(std::span<double>)> sum;
  /// Makes the gradients of this rank's cells and samples those of the model: sums over the field,
  /// averages over samples.
  std::function<void(std::span<double>)> reduce;
  std::size_t first_sample = 0, samples = 0;
};

TrainedDomain train_alone(const DomainModel& model);
/// On an axis with a rank for each block.
TrainedDomain train_domain(parallel::Axis& axis, const DomainModel& model,
                           const DomainRanks& ranks);
/// The same, with gradients that are added up by an all-reduce.
TrainedDomain train_domain(parallel::Axis& axis, const DomainModel& model);
/// Blocks x replicas: "y", "x", and "dp", which divides the samples, with DataParallel on it.
TrainedDomain train_hybrid(parallel::Mesh& mesh, const DomainModel& model);

/// The largest difference, relative to the largest number.
double difference(const TrainedDomain& one, const TrainedDomain& alone);

}  // namespace tutti::test
