// Sets of cores and NUMA domains as text: hwloc's and NCCL's masks ("ffff0000,00000000", highest
// word first) and the kernel's lists ("0-3,8").
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace tutti {

/// The members. Leaves out words that are not numbers, and numbers beyond 64 Ki.
std::set<int> members_of_mask(std::string_view mask);
std::set<int> members_of_list(std::string_view list);
/// In groups of 32 bits, without 0x.
std::string mask_of(const std::set<int>& members);

}  // namespace tutti
