// Small topologies, written for the tests: one of each kind of thing that files are made of.
#pragma once

namespace tutti::test {

/// Two sockets, four GPUs in a full mesh of NVLinks, a NIC for each pair; version 1.
constexpr const char* kMesh = R"(
<!-- a comment before the system, and an empty line before it -->
<system version="1" name="mesh">
  <cpu numaid="1" affinity="ffff0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">
    <pci link_width="16" busid="0001:03:00.0" class="0x060400" vendor="0x10b5" device="0x8796" link_speed="16 GT/s">
      <!-- a comment inside -->
      <pci busid="0001:04:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0001:05:00.0" count="4" tclass="0x030200"/>
          <nvlink target="10000:04:00.0" count="4" tclass="0x030200"/>
          <nvlink target="10000:05:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0001:05:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0x1" sm="80" rank="1" gdr="1">
          <nvlink target="0001:04:00.0" count="4" tclass="0x030200"/>
          <nvlink target="10000:04:00.0" count="4" tclass="0x030200"/>
          <nvlink target="10000:05:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0001:06:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" latency="0.5" guid="0x1" maxconn="262144" gdr="1" gin="1" future="x"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="106">
    <pci busid="10000:03:00.0" class="0x060400" vendor="0x10b5" device="0x8796" link_speed="16 GT/s" link_width="16">
      <pci busid="10000:04:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="2" sm="80" rank="2" gdr="1">
          <nvlink target="0001:04:00.0" count="4" tclass="0x030200"/>
          <nvlink target="0001:05:00.0" count="4" tclass="0x030200"/>
          <nvlink target="10000:05:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="10000:05:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="3" sm="80" rank="3" gdr="1">
          <nvlink target="0001:04:00.0" count="4" tclass="0x030200"/>
          <nvlink target="0001:05:00.0" count="4" tclass="0x030200"/>
          <nvlink target="10000:04:00.0" count="4" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="10000:06:00.0" class="0x020700" vendor="0x15b3" device="0x101b" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_1" dev="1" speed="200000" port="1" latency="0.5" guid="0x2" maxconn="262144" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
)";

/// Four GPUs on switches, C2C, and a virtual bridge that says the least there is.
constexpr const char* kSwitched = R"(<system version="1">
  <cpu host_hash="0xa" numaid="0" affinity="ff" arch="arm64">
    <pci busid="0008:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0008:06:00.0" class="0x030200" vendor="0x10de" device="0x2342" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="44712" count="10"/></gpu>
      </pci>
    </pci>
    <pci busid="0009:06:00.0" class="0x030200" vendor="0x10de" device="0x2342" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="44712" count="10"/></gpu>
    </pci>
    <nic><net name="eth0" dev="0" speed="10000" port="0" guid="0x0"/></nic>
  </cpu>
  <cpu host_hash="0xa" numaid="1" affinity="ff00" arch="arm64">
    <pci busid="0018:06:00.0" class="0x030200" vendor="0x10de" device="0x2342" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="2" sm="90" rank="2" gdr="1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="44712" count="10"/></gpu>
    </pci>
    <pci busid="0019:06:00.0" class="0x030200" vendor="0x10de" device="0x2342" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="3" sm="90" rank="3" gdr="1"><nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="44712" count="10"/></gpu>
    </pci>
    <nic><net name="eth0" dev="0" speed="10000" port="0" guid="0x0"/></nic>
  </cpu>
</system>
)";

/// RCCL's version 2, with xGMI.
constexpr const char* kAmd = R"(<!-- for RCCL -->
<system version="2">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:29:00.0" class="0x038000" vendor="0x1002" device="0x740c" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="104" gcn="910" arch="38911" rank="0" gdr="1"><xgmi target="0000:2c:00.0" count="4" tclass="0x038000"/></gpu>
    </pci>
    <pci busid="0000:2c:00.0" class="0x038000" vendor="0x1002" device="0x740c" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="104" gcn="910" arch="38911" rank="1" gdr="1"><xgmi target="0000:29:00.0" count="4" tclass="0x038000"/></gpu>
    </pci>
  </cpu>
</system>
)";

/// What clouds give: classes, no records of GPUs.
constexpr const char* kSkeleton = R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0101:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
      <pci busid="0002:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
    </pci>
  </cpu>
</system>
)";

/// hwloc's three formats: the same machine with one GPU and one NIC.
constexpr const char* kHwloc1 = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc.dtd">
<topology>
  <object type="Machine" os_index="0" cpuset="0x000000ff" nodeset="0x00000003">
    <info name="Architecture" value="x86_64"/><info name="HostName" value="one"/>
    <object type="NUMANode" os_index="0" cpuset="0x0000000f" nodeset="0x00000001">
      <object type="Package" os_index="0" cpuset="0x0000000f" nodeset="0x00000001">
        <info name="CPUVendor" value="GenuineIntel"/><info name="CPUFamilyNumber" value="6"/><info name="CPUModelNumber" value="85"/>
        <object type="Cache" cpuset="0x0000000f" cache_size="33554432" depth="3"/>
      </object>
      <object type="Bridge" os_index="0" bridge_type="0-1" depth="0" bridge_pci="0000:[00-05]">
        <object type="Bridge" os_index="16" bridge_type="1-1" depth="1" bridge_pci="0000:[04-04]" pci_busid="0000:00:01.0" pci_type="0604 [8086:6f02] [0000:0000] 01" pci_link_speed="15.753846">
          <object type="PCIDev" os_index="16384" pci_busid="0000:04:00.0" pci_type="0302 [10de:15f9] [10de:11dd] a1" pci_link_speed="15.753846">
            <object type="OSDev" name="nvml0" osdev_type="1"><info name="GPUModel" value="Tesla P100-SXM2-16GB"/></object>
          </object>
        </object>
        <object type="PCIDev" os_index="20480" pci_busid="0000:05:00.0" pci_type="0108 [144d:a822] [1014:0621] 01" pci_link_speed="0.000000"/>
      </object>
    </object>
    <object type="NUMANode" os_index="1" cpuset="0x000000f0" nodeset="0x00000002">
      <object type="Package" os_index="1" cpuset="0x000000f0" nodeset="0x00000002"/>
      <object type="Bridge" os_index="1" bridge_type="0-1" depth="0" bridge_pci="0000:[80-81]">
        <object type="PCIDev" os_index="528384" pci_busid="0000:81:00.0" pci_type="0207 [15b3:1013] [15b3:0003] 00" pci_link_speed="15.753846">
          <object type="OSDev" name="ib0" osdev_type="2"/>
          <object type="OSDev" name="mlx5_0" osdev_type="3"><info name="Port1State" value="4"/></object>
        </object>
      </object>
    </object>
    <object type="NUMANode" os_index="255" cpuset="0x0" nodeset="0x00000004"/>
  </object>
</topology>
)";

constexpr const char* kHwloc3 = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="3.0">
  <object type="Machine" os_index="0" cpuset="0x000000ff" nodeset="0x00000003" gp_index="1" id="obj1">
    <info name="Architecture" value="x86_64"/>
    <object type="Package" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" gp_index="2" id="obj2">
      <object type="NUMANode" os_index="0" cpuset="0x0000000f" nodeset="0x00000001" gp_index="3" id="obj3"/>
      <object type="L3Cache" cpuset="0x0000000f" nodeset="0x00000001" gp_index="4" id="obj4"/>
      <object type="Bridge" gp_index="10" id="obj10" bridge_type="0-1" depth="0" bridge_pci="0000:[00-04]">
        <object type="PCIDev" gp_index="11" id="obj11" pci_busid="0000:03:00.0" pci_type="0302 [10de:1db1] [10de:1212] a1 00" pci_link_speed="15.753846">
          <object type="OSDev" gp_index="20" id="obj20" name="nvml0" osdev_type="12"/>
        </object>
        <object type="PCIDev" gp_index="12" id="obj12" pci_busid="0000:04:00.0" pci_type="0302 [10de:1db1] [10de:1212] a1 00" pci_link_speed="15.753846">
          <object type="OSDev" gp_index="21" id="obj21" name="nvml1" osdev_type="12"/>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x000000f0" nodeset="0x00000002" gp_index="5" id="obj5">
      <object type="NUMANode" os_index="1" cpuset="0x000000f0" nodeset="0x00000002" gp_index="6" id="obj6"/>
      <object type="Bridge" gp_index="13" id="obj13" bridge_type="0-1" depth="0" bridge_pci="0000:[80-81]">
        <object type="PCIDev" gp_index="14" id="obj14" pci_busid="0000:81:00.0" pci_type="0200 [15b3:1013] [15b3:0003] 00 00" pci_link_speed="15.753846">
          <object type="OSDev" gp_index="22" id="obj22" name="eth2" osdev_type="16"/>
        </object>
      </object>
    </object>
  </object>
  <distances2hetero nbobjs="2" kind="25" name="NVLinkBandwidth">
    <indexes length="16">OSDev:20 OSDev:21 </indexes>
    <u64values length="16">0 50000 50000 0 </u64values>
  </distances2hetero>
</topology>
)";

}  // namespace tutti::test
