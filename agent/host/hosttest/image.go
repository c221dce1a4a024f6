package hosttest

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
)

// EncodeImage returns a file in the PE format, as a stand-in for a unified kernel image. The pairs are the names and contents of its sections.
func EncodeImage(pairs ...[2]string) string {
	const headers = 64 + 4 + 20
	offset := uint32(headers + 40*len(pairs))
	var file, content bytes.Buffer
	// The header of MS-DOS ends with the offset of the next header.
	file.WriteString("MZ" + string(make([]byte, 58)) + "\x40\x00\x00\x00" + "PE\x00\x00")
	write := func(header any) { _ = binary.Write(&file, binary.LittleEndian, header) } // A buffer has no errors.
	write(pe.FileHeader{Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: uint16(len(pairs))})
	for _, pair := range pairs {
		size := uint32(len(pair[1]))
		section := pe.SectionHeader32{VirtualSize: size, SizeOfRawData: size, PointerToRawData: offset + uint32(content.Len())}
		copy(section.Name[:], pair[0])
		write(section)
		content.WriteString(pair[1])
	}
	return file.String() + content.String()
}

// ImageSection returns the content of a section of a file in the PE format.
func ImageSection(file, name string) (string, error) {
	image, err := pe.NewFile(bytes.NewReader([]byte(file)))
	if err != nil {
		return "", err
	}
	section := image.Section(name)
	if section == nil {
		return "", nil
	}
	data, err := section.Data()
	return string(data[:min(len(data), int(section.VirtualSize))]), err
}
