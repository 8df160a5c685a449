// The hosts of a job, as a user, a file or Slurm lists them: refused with a sentence, or hosts
// whose names ssh does not take for options, and whose ranks count up.
#include <sys/mman.h>
#include <unistd.h>

#include "core/file_descriptor.h"
#include "tests/fuzz/target.h"
#include "tools/run/job_hosts.h"

namespace tutti::fuzz::host_lists {
namespace {

void check(const std::vector<JobHost>& hosts) {
  for (const JobHost& host : hosts) {
    require(!host.name.empty() && host.name.front() != '-', "a name is no option");
    require(host.slots >= 0, "a host has slots or none");
  }
  for (const int ranks : {0, 7}) {
    std::vector<HostShare> shares;
    if (!accepts(ErrorCode::invalid_argument, [&] { shares = share_ranks(hosts, ranks); }))
      continue;
    int next = 0;
    for (const HostShare& share : shares) {
      require(share.first_rank == next && share.ranks > 0, "hosts have the ranks in order");
      next += share.ranks;
    }
    require(ranks == 0 || next == ranks, "all ranks have a host");
  }
}

void run(std::string_view input) {
  Input in(input);
  const unsigned form = in.byte() % 3;
  const std::string text(in.rest().substr(0, 4096));
  if (form == 0) {
    std::vector<JobHost> hosts;
    if (accepts(ErrorCode::invalid_argument, [&] { hosts = hosts_in_list(text); })) check(hosts);
  } else if (form == 1) {
    static const FileDescriptor file(::memfd_create("hosts", MFD_CLOEXEC));
    require(::ftruncate(file.fd(), 0) == 0 && ::pwrite(file.fd(), text.data(), text.size(), 0) ==
                                                  static_cast<ssize_t>(text.size()),
            "the file is there");
    std::vector<JobHost> hosts;
    const std::string path = "/proc/self/fd/" + std::to_string(file.fd());
    if (accepts(ErrorCode::invalid_argument, [&] { hosts = hosts_in_file(path); })) check(hosts);
  } else {
    std::vector<std::string> nodes;
    if (accepts(ErrorCode::invalid_argument, [&] { nodes = expand_node_list(text); })) {
      require(nodes.size() <= 200'000, "a short list stands for a bounded number of nodes");
    }
  }
}

std::vector<std::string> seeds() {
  const auto with = [](char form, std::string_view text) {
    return std::string(1, form).append(text);
  };
  return {with('\0', "node1:4,node2:4,[fd00::2]:2"),
          with('\1', "node1 slots=4 # the first\nnode2:3\n\nfd00::1\nnode1\n"),
          with('\2', "node[1-3,07],login,r[1-2]n[3-4]"),
          // No node, for a thousand million times.
          with('\2', "node[0-999999998][]")};
}

const Registered target({"host_lists", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::host_lists
