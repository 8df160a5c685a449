// See describe.h.
#include "transport/topology/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "core/error.h"
#include "transport/topology/source.h"

namespace tutti::topology {
namespace {

constexpr int kMostGpus = 1024;

/// Runs of letters and digits, in lower case.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// "RTX4090" is "RTX 4090" for people, so words count where they are found, not as words.
int words_in(const std::vector<std::string>& words, const std::string& text) {
  int found = 0;
  for (const std::string& w : words) found += text.find(w) != text.npos ? 1 : 0;
  return found;
}

/// Whether a word is a model's number, maybe with the family before it ("rtx4090") or the form
/// after it ("h100sxm"): not the L40 of an L40S, nor the A10 of an A100, nor the B200 of a GB200.
bool is_number(const std::string& number, const std::string& word) {
  const auto at = word.find(number);
  if (at == word.npos) return false;
  const std::string before = word.substr(0, at), after = word.substr(at + number.size());
  return (before.empty() || before == "rtx" || before == "nvidia" || before == "mi") &&
         (after.empty() || after.starts_with("sxm") || after.starts_with("pcie"));
}

bool for_slots(const GpuModel& model) { return model.name.find("PCIe") != model.name.npos; }

}  // namespace

const GpuModel* find_gpu_model(std::string_view name) {
  const std::vector<std::string> given = words_of(name);
  std::string all;
  for (const std::string& w : given) all += w;
  const GpuModel* best = nullptr;
  double most = 0;
  for (const GpuModel& m : gpu_models()) {
    if (m.device == 0) continue;
    const auto words = words_of(m.name);
    // Its number has to be there ("4090", "h100"), and of what else its name says as much as can
    // be.
    const std::string& number = words.front() == "rtx" && words.size() > 1 ? words[1] : words[0];
    if (std::ranges::none_of(given, [&](const std::string& w) { return is_number(number, w); })) {
      continue;
    }
    const int found = words_in(words, all);
    const double score = found + 0.01 * static_cast<double>(number.size()) -
                         0.001 * static_cast<double>(static_cast<int>(words.size()) - found) -
                         (for_slots(m) && all.find("pcie") == all.npos ? 0.5 : 0);
    if (score <= most) continue;
    most = score;
    best = &m;
  }
  return best;
}

std::string machine_xml(const GpuModel& model, int count, int ports, double port_rate,
                        bool bridged) {
  const bool pairs = for_slots(model) || model.sm == 86;
  const bool amd = model.vendor == 0x1002;
  const int processors = count > 1 ? 2 : 1;
  const std::string speed = fmt::format("{:g} GT/s PCIe", model.pci_speed);
  const auto bus = [](int gpu) {
    return fmt::format("0000:{:02x}:{:02x}.0", gpu / 16 + 1, gpu % 16);
  };
  std::string xml = "<system version=\"1\">\n";
  int port = 0;
  for (int cpu = 0; cpu < processors; ++cpu) {
    xml += fmt::format(
        "  <cpu numaid=\"{}\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" "
        "modelid=\"143\">\n",
        cpu);
    for (int gpu = cpu * count / processors; gpu < (cpu + 1) * count / processors; ++gpu) {
      xml += fmt::format(
          "    <pci busid=\"0000:{:02x}:{:02x}.0\" class=\"0x060400\" link_speed=\"{}\" "
          "link_width=\"16\">\n",
          0x80 + gpu / 16, gpu % 16, speed);
      xml += fmt::format(
          "      <pci busid=\"{}\" class=\"{}\" vendor=\"0x{:04x}\" device=\"0x{:04x}\" "
          "link_speed=\"{}\" link_width=\"16\">\n        <gpu dev=\"{}\" {} rank=\"{}\" "
          "gdr=\"1\">\n",
          bus(gpu), amd ? "0x038000" : "0x030200", model.vendor, model.device, speed, gpu,
          amd ? fmt::format("sm=\"94\" gcn=\"gfx{}\" arch=\"1\"", model.gcn)
              : fmt::format("sm=\"{}\"", model.sm),
          gpu);
      if (model.links > 0 && count > 1) {
        if (amd) {
          for (int peer = 0; peer < count; ++peer) {
            if (peer == gpu) continue;
            xml += fmt::format("          <xgmi target=\"{}\" count=\"{}\" tclass=\"0x038000\"/>\n",
                               bus(peer), std::max(1, model.links / std::max(1, count - 1)));
          }
        } else if (!pairs) {
          xml += fmt::format(
              "          <nvlink target=\"fffffff:ff:ff.0\" count=\"{}\" tclass=\"0x068000\"/>\n",
              model.links);
        } else if (bridged && (gpu ^ 1) < count) {
          xml += fmt::format("          <nvlink target=\"{}\" count=\"{}\" tclass=\"0x030200\"/>\n",
                             bus(gpu ^ 1), model.links);
        }
      }
      xml += "        </gpu>\n      </pci>\n";
      for (; port_rate > 0 && port < ports && port * count <= gpu * ports; ++port) {
        xml += fmt::format(
            "      <pci busid=\"0001:{:02x}:{:02x}.0\" class=\"0x020000\" vendor=\"0x15b3\" "
            "device=\"0x1023\" link_speed=\"{}\" link_width=\"16\">\n        <nic>\n          <net "
            "name=\"net{}\" dev=\"{}\" speed=\"{:.0f}\" port=\"1\" gdr=\"1\"/>\n        </nic>\n "
            "     </pci>\n",
            port / 16 + 1, port % 16, speed, port, port, port_rate * 1000);
      }
      xml += "    </pci>\n";
    }
    xml += "  </cpu>\n";
  }
  return xml + "</system>\n";
}

Described parse_machine(std::string_view text) {
  const auto refuse = [&](std::string_view why) -> void {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("machine '{}': {}; write it as 8xH100, 2xRTX4090 or '2xA100-PCIe "
                            "nvlink' (with the bridge)",
                            printable(text), why));
  };
  Described d;
  const auto x = text.find('x');
  const auto count = x == text.npos ? std::nullopt : whole_integer(text.substr(0, x));
  if (!count || *count < 1 || *count > kMostGpus) {
    refuse(fmt::format("it begins with no number of GPUs from 1 to {}", kMostGpus));
  }
  d.count = static_cast<int>(*count);
  auto model = text.substr(x + 1);
  if (const auto blank = model.find(' '); blank != model.npos) {
    const auto rest = trimmed(model.substr(blank));
    d.bridged = rest.starts_with("nvl");
    if (!rest.empty() && !d.bridged) refuse(fmt::format("what is '{}'?", printable(rest)));
    model = model.substr(0, blank);
  }
  d.model = find_gpu_model(model);
  if (d.model == nullptr) refuse("no GPU of that name is known");
  return d;
}

}  // namespace tutti::topology
