#include "parallel/data_parallel/buckets.h"

#include <map>
#include <utility>

namespace tutti::parallel {

std::size_t Parameter::count() const {
  std::size_t result = 1;
  for (const std::size_t size : shape) result *= size;
  return result;
}

BucketLayout lay_out(std::span<const Parameter> parameters, std::span<const std::uint32_t> order,
                     const DataParallelPolicy& policy) {
  BucketLayout layout;
  layout.bucket_of.resize(parameters.size());
  layout.offset_of.resize(parameters.size());
  // A bucket is sent when its last gradient is there: so those that are still open in the end come
  // in the order of their last gradients.
  struct Open {
    Bucket bucket;
    std::size_t last = 0;  // position in `order`
  };
  std::map<DataType, Open> open;
  const auto close = [&](Bucket bucket) { layout.buckets.push_back(std::move(bucket)); };
  const auto limit = [&] {
    return layout.buckets.empty() ? policy.first_bucket_bytes : policy.bucket_bytes;
  };
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Parameter& p = parameters[order[at]];
    const std::size_t element = size_of(p.type), bytes = p.count() * element;
    Open& o = open[p.type];
    if (!o.bucket.gradients.empty() && o.bucket.count * element + bytes > limit()) {
      close(std::exchange(o.bucket, {}));
    }
    o.bucket.type = p.type;
    o.bucket.gradients.push_back(order[at]);
    o.bucket.count += p.count();
    o.last = at;
    if (o.bucket.count * element >= limit()) close(std::exchange(o.bucket, {}));
  }
  std::map<std::size_t, Bucket> rest;
  for (auto& [type, o] : open) {
    if (!o.bucket.gradients.empty()) rest.emplace(o.last, std::move(o.bucket));
  }
  for (auto& [last, bucket] : rest) close(std::move(bucket));

  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    Bucket& bucket = layout.buckets[b];
    bucket.offset = layout.bytes;
    std::size_t offset = bucket.offset;
    for (const std::uint32_t i : bucket.gradients) {
      layout.bucket_of[i] = static_cast<std::uint32_t>(b);
      layout.offset_of[i] = offset;
      offset += parameters[i].count() * size_of(bucket.type);
    }
    layout.bytes = (offset + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
  }
  return layout;
}

}  // namespace tutti::parallel
