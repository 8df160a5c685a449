#include "parallel/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::parallel {
namespace {

Mesh::Names sorted(Mesh::Names names) {
  std::ranges::sort(names);
  return names;
}

std::string joined(const Mesh::Names& names) { return fmt::format("{}", fmt::join(names, " x ")); }

/// Before anything is checked: a rank that refused its mesh alone would leave the others waiting.
MeshShape agreed_shape(Communicator& world, std::vector<MeshDimension> dimensions,
                       const std::vector<Mesh::Names>& fused) {
  std::vector<std::string> lines;
  for (const MeshDimension& d : dimensions) lines.push_back(fmt::format("{} {}", d.name, d.size));
  for (const Mesh::Names& names : fused) {
    std::string line = "fused";
    for (const std::string& name : names) line += ' ' + name;
    lines.push_back(line);
  }
  CommunicatorAxis all(world);
  agree(all, "the mesh", lines);
  MeshShape shape(world.size(), std::move(dimensions));
  for (const Mesh::Names& names : fused) shape.size(names);  // they have to be there
  return shape;
}

}  // namespace

Mesh::Mesh(Communicator& world, std::vector<MeshDimension> dimensions,
           const std::vector<Names>& fused, const Options& options)
    : rank_(world.rank()), shape_(agreed_shape(world, std::move(dimensions), fused)) {
  std::vector<Names> wanted;
  for (const MeshDimension& d : shape_.dimensions()) wanted.push_back({d.name});
  wanted.insert(wanted.end(), fused.begin(), fused.end());
  for (const Names& names : wanted) {
    Member& member = members_[sorted(names)];
    if (member.axis) continue;
    const MeshShape::GroupRank own = shape_.group_rank(rank_, names);
    member.communicator = world.split(own.group, own.rank, options);
    member.axis = std::make_unique<CommunicatorAxis>(
        member.communicator, AxisName{joined(names), shape_.group(rank_, names)});
  }
}

void Mesh::abort(std::string_view reason) {
  for (auto& [names, member] : members_) member.communicator.abort(reason);
}

CommunicatorAxis& Mesh::axis(const Names& names) {
  const auto found = members_.find(sorted(names));
  if (found != members_.end()) return *found->second.axis;
  shape_.size(names);  // throws for names that the mesh does not have
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the mesh {} has no fused axis of these {} dimensions: name them when "
                          "the mesh is made",
                          shape_.text(), names.size()));
}

}  // namespace tutti::parallel
